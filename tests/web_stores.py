"""Stand-ins for Elasticsearch, OpenSearch, Weaviate and Pinecone on loopback, in memory.

No package index here has these servers. The stand-in answers in the form of their published interfaces; it is no
recording of a real server.
"""

from __future__ import annotations

import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np


class Held:
    def __init__(self, opensearch=False):
        self.opensearch, self.form, self.rows, self.headers, self.open_scrolls = opensearch, None, {}, [], 0

    def nearest(self, vector, k, key):
        names = list(self.rows)
        matrix = np.array([self.rows[name][key] for name in names])
        return [names[j] for j in np.argsort(-(matrix @ np.array(vector)))[:k]]

    def answer(self, method, path, query, body):
        if path == "/":
            return {
                "version": {"number": "2.19.0", "distribution": "opensearch"}
                if self.opensearch
                else {"number": "9.2.1"}
            }
        if path == "/_search/scroll":
            if method == "DELETE":
                self.open_scrolls -= 1
                return {}
            return self.page(int(body["scroll_id"]), True)
        if path == "/idx":
            self.form = body
            return {}
        if path == "/idx/_mapping":
            return None if self.form is None else {"idx": self.form}
        if path.startswith("/idx/_doc/"):
            self.rows[unquote(path[10:])] = body
            return {}
        if path == "/idx/_search":
            if "scroll" in query:
                self.open_scrolls += 1
                self.size = body["size"]
                return self.page(0, self.opensearch or body["_source"] == {"exclude_vectors": False})
            near = body.get("knn") or body["query"].get("knn", {}).get("embedding")
            if near:
                found = self.nearest(near.get("query_vector", near.get("vector")), near["k"], "embedding")
                return {"hits": {"hits": [{"_id": name} for name in found]}}
            hits = [
                {"_id": n, "_source": {k: v for k, v in r.items() if k != "embedding"}} for n, r in self.rows.items()
            ]
            return {"hits": {"hits": hits[: body["size"]]}}
        if path == "/v1/schema":
            self.form = body
            return {}
        if path == "/v1/schema/Idx":
            return self.form
        if path == "/v1/batch/objects":
            self.rows.update({each["id"]: each for each in body["objects"]})
            return [{"result": {}} for _ in body["objects"]]
        if path == "/v1/objects":
            after = query.get("after", [""])[0]
            names = [name for name in sorted(self.rows) if name > after][: int(query["limit"][0])]
            return {"objects": [self.rows[name] for name in names]}
        if path == "/v1/graphql":
            vector, k = re.search(r"vector: (\[.*?\]).*limit: (\d+)", body["query"]).groups()
            found = self.nearest(json.loads(vector), int(k), "vector")
            hits = [{"row_id": self.rows[n]["properties"]["row_id"], "_additional": {"id": n}} for n in found]
            return {"data": {"Get": {"Idx": hits}}}
        if path == "/describe_index_stats":
            return {"namespaces": {"ns": {"vectorCount": len(self.rows)}} if self.rows else {}, "metric": "cosine"}
        if path == "/vectors/upsert":
            self.rows.update({each["id"]: each for each in body["vectors"]})
            return {}
        if path == "/vectors/list":
            start, size = int(query.get("paginationToken", ["0"])[0]), int(query["limit"][0])
            names = list(self.rows)[start : start + size]
            more = {"pagination": {"next": str(start + size)}} if start + size < len(self.rows) else {}
            return {"vectors": [{"id": name} for name in names], **more}
        if path == "/vectors/fetch":
            return {"vectors": {name: self.rows[name] for name in query["ids"]}}
        if path == "/query":
            return {"matches": [{"id": name} for name in self.nearest(body["vector"], body["topK"], "values")]}
        return {}

    def page(self, start, with_vectors):
        part = list(self.rows.items())[start : start + self.size]
        hits = [
            {"_id": n, "_source": {k: v for k, v in r.items() if with_vectors or k != "embedding"}} for n, r in part
        ]
        return {"_scroll_id": str(start + self.size), "hits": {"hits": hits}}


@contextmanager
def serving(held):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # one packet an answer

        def do_GET(self):
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else {}
            held.headers.append(dict(self.headers))
            parts = urlsplit(self.path)
            answer = held.answer(self.command, parts.path, parse_qs(parts.query), body)
            raw = json.dumps(answer or {}).encode()
            self.send_response(404 if answer is None else 200)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815

        def log_message(self, *_):
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
