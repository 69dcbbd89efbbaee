"""Stand-ins for Elasticsearch, OpenSearch, Weaviate and Pinecone on loopback, in memory.

No package index here has these servers. A stand-in answers in the form of its published interface, and refuses what the
interface refuses; `make test-clients` shows that the official clients can use it. It is no recording of a real server.
"""

from __future__ import annotations

import json
import re
import threading
import uuid
from contextlib import contextmanager
from fnmatch import fnmatch
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np

JSON = "application/json"
BUILD = {"build_type": "tar", "build_hash": "0", "build_date": "2026-01-01T00:00:00Z", "build_snapshot": False,
         "build_flavor": "default", "minimum_wire_compatibility_version": "8.19.0",
         "minimum_index_compatibility_version": "8.0.0"}  # fmt: skip


class Asked(NamedTuple):
    """A request; `path` is decoded."""

    method: str
    path: str
    values: dict
    body: bytes
    headers: dict

    @property
    def query(self):
        """The last value of each name of the query."""
        return {name: values[-1] for name, values in self.values.items()}

    @property
    def json(self):
        return json.loads(self.body) if self.body else {}


class Refused(Exception):  # noqa: N818
    """The status and the body of a refusal."""


def stand_in(kind):
    """The stand-in of a kind of address."""
    return {
        "elastic": Elastic,
        "opensearch": OpenSearch,
        "weaviate": Weaviate,
        "pinecone": Pinecone,
    }[kind]()


class StandIn:
    """What was asked is kept; `routes` are (methods, pattern of the path, name of the method that answers)."""

    routes: tuple = ()
    kind = JSON

    def __init__(self):
        self.asked = []

    def answer(self, asked):
        self.asked.append(asked)
        for methods, pattern, name in self.routes:
            if asked.method in methods.split() and (found := re.fullmatch(pattern, asked.path)):
                try:
                    return 200, getattr(self, name)(asked, *found.groups())
                except Refused as refused:
                    return refused.args
        return 405, {"error": f"{asked.method} {asked.path} is not part of this stand-in"}

    def sent_back(self, asked):
        """Headers of every answer."""
        return {"Content-Type": JSON}


def nearest(rows, vector, k, distance="cosine"):
    """The names of the k nearest of {name: vector}, and their scores; (1 + cos) / 2 for cosines."""
    names, query = list(rows), np.array(vector, dtype=float)
    matrix = np.array([rows[name] for name in names], dtype=float).reshape(len(names), -1)
    if distance in ("l2_norm", "l2", "l2-squared", "euclidean"):
        scores = 1 / (1 + ((matrix - query) ** 2).sum(axis=1))
    elif distance in ("cosine", "cosinesimil"):
        lengths = np.linalg.norm(matrix, axis=1) * np.linalg.norm(query)
        scores = (1 + matrix @ query / lengths) / 2
    else:
        scores = matrix @ query
    order = np.argsort(-scores, kind="stable")[:k]
    return [(names[j], float(scores[j])) for j in order]


class Elastic(StandIn):
    """Elasticsearch 9: indexes of documents, found by their vectors or read by a scroll."""

    root = {  # noqa: RUF012
        "name": "node",
        "cluster_name": "cluster",
        "cluster_uuid": "u",
        "version": {"number": "9.2.1", **BUILD, "lucene_version": "10.3.1"},
        "tagline": "You Know, for Search",
    }
    vector_kind, size_of, similarity = "dense_vector", "dims", "similarity"
    routes = (
        ("GET HEAD", "/", "greet"),
        ("POST DELETE", "/_search/scroll", "scroll"),
        ("POST PUT", r"(?:/([^_/][^/]*))?/_bulk", "bulk"),
        ("GET", r"/([^_/][^/]*)/_mapping", "mapping"),
        ("GET POST", r"/([^_/][^/]*)/_refresh", "refresh"),
        ("GET POST", r"/([^_/][^/]*)/_search", "search"),
        ("PUT HEAD DELETE", r"/([^_/][^/]*)", "index"),
    )

    def __init__(self):
        super().__init__()
        self.forms, self.rows, self.scrolls = {}, {}, {}

    def sent_back(self, asked):
        kind = asked.headers.get("Accept", JSON)
        return {"X-Elastic-Product": "Elasticsearch", "Content-Type": JSON if "*" in kind else kind}

    def refuse(self, status, kind, reason):
        cause = {"type": kind, "reason": reason}
        raise Refused(status, {"error": {"root_cause": [cause], **cause}, "status": status})

    def held(self, index):
        if index not in self.forms:
            self.refuse(404, "index_not_found_exception", f"no such index [{index}]")
        return self.forms[index]["properties"]

    def greet(self, asked):
        return self.root

    def index(self, asked, index):
        if asked.method == "PUT":
            if index in self.forms:
                self.refuse(400, "resource_already_exists_exception", f"index [{index}/u] already exists")
            form = asked.json
            if unknown := set(form) - {"settings", "mappings", "aliases"}:
                self.refuse(400, "parse_exception", f"unknown key {unknown} in the template")
            mappings = {"properties": {}, **form.get("mappings", {})}
            for name, field in mappings["properties"].items():
                if field["type"] not in ("text", "keyword", self.vector_kind):
                    self.refuse(400, "mapper_parsing_exception", f"No handler for type [{field['type']}] on [{name}]")
            self.forms[index], self.rows[index] = mappings, {}
            return {"acknowledged": True, "shards_acknowledged": True, "index": index}
        self.held(index)
        if asked.method == "DELETE":
            del self.forms[index]
        return {"acknowledged": True}

    def mapping(self, asked, index):
        self.held(index)
        return {index: {"mappings": self.forms[index]}}

    def refresh(self, asked, index):
        self.held(index)
        return {"_shards": {"total": 2, "successful": 1, "failed": 0}}

    def bulk(self, asked, index):
        kind = asked.headers.get("Content-Type", "")
        if not re.match(r"application/(x-ndjson|json|vnd\.elasticsearch\+x-ndjson)", kind):
            self.refuse(406, "media_type_header_exception", f"Content-Type [{kind}] is not supported")
        if not asked.body.endswith(b"\n"):
            self.refuse(400, "illegal_argument_exception", "The bulk request must be terminated by a newline [\\n]")
        lines = [json.loads(line) for line in asked.body.splitlines() if line]
        items = []
        for action, source in zip(lines[::2], lines[1::2], strict=True):
            ((what, told),) = action.items()
            own, name = told.get("_index", index), told["_id"]
            wrong = self.wrong(own, source) if what in ("index", "create") else f"{what} is not part of this stand-in"
            if wrong:
                error = {"type": "document_parsing_exception", "reason": wrong}
                items.append({what: {"_index": own, "_id": name, "status": 400, "error": error}})
                continue
            self.rows[own][name] = source
            shards = {"total": 2, "successful": 1, "failed": 0}
            items.append({what: {"_index": own, "_id": name, "_version": 1, "result": "created", "_shards": shards,
                                 "_seq_no": len(self.rows[own]), "_primary_term": 1, "status": 201}})  # fmt: skip
        return {"took": 1, "errors": any("error" in each for item in items for each in item.values()), "items": items}

    def wrong(self, index, source):
        """Why a document is refused; "" where it is not."""
        for name, form in self.held(index).items():
            if form["type"] == self.vector_kind and name in source and len(source[name]) != form[self.size_of]:
                return f"The vector of [{name}] has {len(source[name])} numbers; the mapping says {form[self.size_of]}"
        return ""

    def search(self, asked, index):
        self.held(index)
        body = {**asked.json, **asked.query}
        size = int(body.get("size", 10))
        if size > 10_000:
            self.refuse(400, "illegal_argument_exception", f"Result window is too large: [{size}]")
        scored = self.near(index, body)
        if scored is None:
            if body.get("query", {"match_all": {}}) != {"match_all": {}}:
                self.refuse(400, "parsing_exception", f"unknown query {body['query']}")
            scored = [(name, 1.0) for name in self.rows[index]]
        hits = [self.hit(index, name, score, body.get("_source", True)) for name, score in scored]
        if "scroll" in asked.query:
            name = f"scroll{len(self.scrolls)}=="
            self.scrolls[name] = [hits[k : k + size] for k in range(0, len(hits), size)]
            return self.page(name)
        return self.found(hits[:size], len(hits))

    def near(self, index, body):
        """The names and scores of the k nearest; None where a body asks for no vector."""
        if "knn" not in body:
            return None
        asked = body["knn"]
        if not asked["k"] <= asked["num_candidates"] <= 10_000:
            self.refuse(400, "illegal_argument_exception", "[num_candidates] cannot be less than [k], nor over 10000")
        return self.ordered(index, asked["field"], asked["query_vector"], asked["k"])

    def ordered(self, index, field, vector, k):
        form = self.held(index).get(field, {})
        if form.get("type") != self.vector_kind or len(vector) != form[self.size_of]:
            self.refuse(400, "query_shard_exception", f"[{field}] is no vector field of {len(vector)} numbers")
        rows = {name: row[field] for name, row in self.rows[index].items() if field in row}
        return nearest(rows, vector, k, form.get(self.similarity, "cosine"))

    def hit(self, index, name, score, wanted):
        hit = {"_index": index, "_id": name, "_score": score}
        return hit if wanted is False else {**hit, "_source": self.source(index, self.rows[index][name], wanted)}

    def source(self, index, row, wanted):
        told = wanted if isinstance(wanted, dict) else {"includes": wanted} if isinstance(wanted, list) else {}
        without = list(told.get("excludes", []))
        if self.hides(told):
            without += [name for name, form in self.held(index).items() if form["type"] == self.vector_kind]
        kept = {name: value for name, value in row.items() if not any(fnmatch(name, each) for each in without)}
        return {name: value for name, value in kept.items() if any(fnmatch(name, each) for each in told["includes"])} \
            if "includes" in told else kept  # fmt: skip

    def hides(self, told):
        """From 9.2 on vectors are left out of the source unless they are asked for."""
        return told.get("exclude_vectors", True)

    def found(self, hits, total, **more):
        best = max((hit["_score"] for hit in hits), default=None)
        inner = {"total": {"value": total, "relation": "eq"}, "max_score": best, "hits": hits}
        shards = {"total": 1, "successful": 1, "skipped": 0, "failed": 0}
        return {**more, "took": 1, "timed_out": False, "_shards": shards, "hits": inner}

    def page(self, name):
        pages = self.scrolls[name]
        hits = pages.pop(0) if pages else []
        return self.found(hits, len(hits) + sum(map(len, pages)), _scroll_id=name)

    def scroll(self, asked):
        told = asked.json["scroll_id"]
        names = told if isinstance(told, list) else [told]
        if missing := [name for name in names if name not in self.scrolls]:
            self.refuse(404, "search_context_missing_exception", f"No search context found for id {missing}")
        if asked.method == "DELETE":
            for name in names:
                del self.scrolls[name]
            return {"succeeded": True, "num_freed": len(names)}
        return self.page(names[0])


class OpenSearch(Elastic):
    """OpenSearch 2: the same but for its vectors."""

    root = {  # noqa: RUF012
        "name": "node",
        "cluster_name": "cluster",
        "cluster_uuid": "u",
        "version": {"distribution": "opensearch", "number": "2.19.0", **BUILD, "lucene_version": "9.12.1"},
        "tagline": "The OpenSearch Project: https://opensearch.org/",
    }
    vector_kind, size_of, similarity = "knn_vector", "dimension", "space_type"

    def sent_back(self, asked):
        return {"Content-Type": f"{JSON}; charset=UTF-8"}

    def hides(self, told):
        return False

    def near(self, index, body):
        if "knn" in body:
            self.refuse(400, "parsing_exception", "Unknown key for a START_OBJECT in [knn].")
        (field, asked), *_ = body.get("query", {}).get("knn", {}).items() or ((None, None),)
        return None if field is None else self.ordered(index, field, asked["vector"], asked["k"])


class Weaviate(StandIn):
    """Weaviate 1: collections of objects, read by a cursor, found by GraphQL."""

    routes = (
        ("GET", "/v1/.well-known/(?:ready|live)", "ready"),
        ("GET", "/v1/meta", "meta"),
        ("GET", "/v1/nodes", "nodes"),
        ("GET POST", "/v1/schema", "schema"),
        ("GET DELETE", r"/v1/schema/(\w+)", "collection"),
        ("POST", "/v1/batch/objects", "batch"),
        ("GET", "/v1/objects", "page"),
        ("POST", "/v1/graphql", "graphql"),
    )

    def __init__(self):
        super().__init__()
        self.forms, self.rows = {}, {}

    def ready(self, asked):
        return None

    def meta(self, asked):
        return {"hostname": "http://[::]:8080", "modules": {}, "version": "1.33.0"}

    def nodes(self, asked):
        told = {"name": "node", "status": "HEALTHY", "version": "1.33.0"}
        return {"nodes": [{**told, "batchStats": {"queueLength": 0, "ratePerSecond": 0}}]}

    def schema(self, asked):
        if asked.method == "GET":
            return {"classes": list(self.forms.values())}
        form = asked.json
        if form["class"] in self.forms:
            raise Refused(422, {"error": [{"message": f"class name {form['class']} already exists"}]})
        form.setdefault("vectorIndexType", "hnsw")
        form["vectorIndexConfig"] = {"distance": "cosine", "ef": -1, **form.get("vectorIndexConfig", {})}
        self.forms[form["class"]], self.rows[form["class"]] = form, {}
        return form

    def collection(self, asked, name):
        if name not in self.forms:
            raise Refused(404, None)
        return self.forms.pop(name) if asked.method == "DELETE" else self.forms[name]

    def batch(self, asked):
        done = []
        for each in asked.json["objects"]:
            result = {"status": "SUCCESS"}
            if each["class"] not in self.forms:
                result = {"status": "FAILED", "errors": {"error": [{"message": f"no class {each['class']}"}]}}
            else:
                times = {"creationTimeUnix": 1, "lastUpdateTimeUnix": 1}
                self.rows[each["class"]][each["id"]] = {**each, **times, "vectorWeights": None}
            done.append({**each, "result": result})
        return done

    def page(self, asked):
        """After the last id of a page; an empty `after` begins."""
        rows, query = self.rows[asked.query["class"]], asked.query
        if query.get("after"):
            uuid.UUID(query["after"])
        names = [name for name in sorted(rows) if name > query.get("after", "")][: int(query.get("limit", 25))]
        with_vector = "vector" in query.get("include", "").split(",")
        objects = [{key: v for key, v in rows[n].items() if with_vector or key != "vector"} for n in names]
        return {"deprecations": [], "objects": objects, "totalResults": len(objects)}

    def graphql(self, asked):
        text = asked.json["query"]
        name = re.match(r"\s*\{\s*Get\s*\{\s*(\w+)", text)[1]
        if name not in self.forms:
            message = f'Cannot query field "{name}" on type "GetObjectsObj".'
            return {"data": None, "errors": [{"locations": [], "message": message, "path": None}]}
        limit = re.search(r"limit:\s*(\d+)", text)
        vector = json.loads(re.search(r"vector:\s*(\[.*?\])", text)[1])
        fields = re.sub(r"_additional\s*\{.*?\}", "", text[text.rindex(")") + 1 :])
        wanted = re.findall(r"\w+", fields)
        rows = self.rows[name]
        distance = self.forms[name]["vectorIndexConfig"]["distance"]
        found = nearest(
            {n: row["vector"] for n, row in rows.items()}, vector, int(limit[1]) if limit else 100, distance
        )
        hits = [{"_additional": {"id": n}, **{w: rows[n]["properties"].get(w) for w in wanted}} for n, _ in found]
        return {"data": {"Get": {name: hits}}}


class Pinecone(StandIn):
    """One index of Pinecone: its namespaces are made by their first row."""

    routes = (
        ("POST GET", "/describe_index_stats", "stats"),
        ("POST", "/vectors/upsert", "upsert"),
        ("GET", "/vectors/list", "listed"),
        ("GET", "/vectors/fetch", "fetch"),
        ("POST", "/query", "query"),
    )
    most = 2_000_000  # bytes of one request

    def __init__(self):
        super().__init__()
        self.spaces = {}

    def refuse(self, message):
        raise Refused(400, {"code": 3, "message": message, "details": []})

    def stats(self, asked):
        counts = {name: {"vectorCount": len(rows)} for name, rows in self.spaces.items()}
        total = sum(len(rows) for rows in self.spaces.values())
        sizes = [len(row["values"]) for rows in self.spaces.values() for row in rows.values()][:1]
        return {"namespaces": counts, "dimension": sizes[0] if sizes else 64, "indexFullness": 0,
                "totalVectorCount": total, "metric": "cosine", "vectorType": "dense", "memoryFullness": 0,
                "storageFullness": 0}  # fmt: skip

    def upsert(self, asked):
        if len(asked.body) > self.most:
            self.refuse(f"Request size {len(asked.body)} exceeds the maximum supported size of {self.most} bytes")
        body = asked.json
        if len(body["vectors"]) > 1000:
            self.refuse("a request holds at most 1000 vectors")
        if wrong := [each["id"] for each in body["vectors"] if not each["id"].isascii() or len(each["id"]) > 512]:
            self.refuse(f"Vector ID must be ASCII, but got '{wrong[0]}'")
        self.spaces.setdefault(body.get("namespace", ""), {}).update({each["id"]: each for each in body["vectors"]})
        return {"upsertedCount": len(body["vectors"])}

    def listed(self, asked):
        rows = self.spaces.get(asked.query.get("namespace", ""), {})
        start, size = int(asked.query.get("paginationToken", 0)), int(asked.query.get("limit", 100))
        if not 1 <= size <= 100:
            self.refuse("limit must be from 1 to 100")
        names = list(rows)[start : start + size]
        more = {"pagination": {"next": str(start + size)}} if start + size < len(rows) else {}
        return {"vectors": [{"id": name} for name in names], **more, **self.beside(asked)}

    def fetch(self, asked):
        rows = self.spaces.get(asked.query.get("namespace", ""), {})
        found = {name: rows[name] for name in asked.values["ids"] if name in rows}
        return {"vectors": found, **self.beside(asked)}

    def query(self, asked):
        body = asked.json
        rows = {name: row["values"] for name, row in self.spaces.get(body.get("namespace", ""), {}).items()}
        found = nearest(rows, body["vector"], body["topK"])
        return {"results": [], "matches": [{"id": n, "score": 2 * s - 1, "values": []} for n, s in found],
                "namespace": body.get("namespace", ""), "usage": {"readUnits": 5}}  # fmt: skip

    def beside(self, asked):
        return {"namespace": asked.query.get("namespace", ""), "usage": {"readUnits": 1}}


@contextmanager
def serving(held):
    """HOST:PORT of a stand-in."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # one packet an answer

        def do_GET(self):
            length = int(self.headers.get("Content-Length") or 0)
            parts = urlsplit(self.path)
            values = parse_qs(parts.query, keep_blank_values=True)
            headers = {name.title(): value for name, value in self.headers.items()}
            asked = Asked(self.command, unquote(parts.path), values, self.rfile.read(length), headers)
            status, answer = held.answer(asked)
            raw = b"" if answer is None else json.dumps(answer).encode()
            self.send_response(status)
            for name, value in held.sent_back(asked).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(raw)

        do_POST = do_PUT = do_DELETE = do_HEAD = do_GET  # noqa: N815

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
