"""The official clients of four stores at work: `python official.py KIND HOST:PORT WRITE`, in environments of theirs.

Standard input holds rows and queries as JSON. WRITE is "yes" where a new collection is made of them first; then all
rows are read page by page, and each query is searched. Standard output: the rows {id: vector} and the ids found.
"""

from __future__ import annotations

import json
import sys
import uuid

PAGE, TOP = 25, 5


def elastic(place, rows, write):
    import elasticsearch
    import elasticsearch.helpers as helpers

    client = elasticsearch.Elasticsearch(f"http://{place}")
    vector = {"type": "dense_vector", "dims": len(rows[0]["vector"]), "index": True, "similarity": "cosine"}

    def ask(query):
        knn = {"field": "embedding", "query_vector": query, "k": TOP, "num_candidates": 100}
        return client.search(index="idx", knn=knn, size=TOP, source=False)

    client.info()
    made = {"mappings": {"properties": {"embedding": vector, "text": {"type": "text"}, "doc_id": {"type": "keyword"}}}}
    return _index(client, helpers, rows, write, made, {"exclude_vectors": False}, ask)


def opensearch(place, rows, write):
    import opensearchpy
    from opensearchpy import helpers

    host, port = place.split(":")
    client = opensearchpy.OpenSearch([{"host": host, "port": int(port)}])
    vector = {"type": "knn_vector", "dimension": len(rows[0]["vector"]), "space_type": "cosinesimil"}

    def ask(query):
        near = {"embedding": {"vector": query, "k": TOP}}
        return client.search(index="idx", body={"size": TOP, "query": {"knn": near}, "_source": False})

    client.info()
    made = {
        "settings": {"index": {"knn": True}},
        "mappings": {"properties": {"embedding": vector, "text": {"type": "text"}, "doc_id": {"type": "keyword"}}},
    }
    return _index(client, helpers, rows, write, made, True, ask)


def _index(client, helpers, rows, write, made, source, ask):
    """Elasticsearch's client and that of OpenSearch have these calls in common."""
    if write:
        assert not client.indices.exists(index="idx")
        client.indices.create(index="idx", body=made)
        documents = [{"_id": r["id"], "embedding": r["vector"], "text": r["text"], "doc_id": r["group"]} for r in rows]
        lines = [{"index": {"_id": documents[0].pop("_id")}}, documents.pop(0)]
        assert not client.bulk(index="idx", body=lines)["errors"]
        done, errors = helpers.bulk(client, documents, index="idx", chunk_size=40)
        assert (done, errors) == (len(rows) - 1, [])
        client.indices.refresh(index="idx")
    assert list(client.indices.get_mapping(index="idx")) == ["idx"]
    look = {"query": {"match_all": {}}, "_source": {"excludes": ["embedding"]}}
    assert "embedding" not in client.search(index="idx", body={**look, "size": 20})["hits"]["hits"][0]["_source"]
    whole = {"query": {"match_all": {}}, "_source": source}
    hits = list(helpers.scan(client, index="idx", query=whole, size=PAGE, scroll="2m"))
    found = [[hit["_id"] for hit in ask(query)["hits"]["hits"]] for query in QUERIES]
    return {hit["_id"]: hit["_source"]["embedding"] for hit in hits}, found


def weaviate(place, rows, write):
    import weaviate

    client = weaviate.Client(f"http://{place}")
    if write:
        names = ["row_id", "text", "doc_id"]
        properties = [{"name": name, "dataType": ["text"]} for name in names]
        config = {"distance": "cosine"}
        client.schema.create_class(
            {"class": "Idx", "vectorizer": "none", "vectorIndexConfig": config, "properties": properties}
        )
        with client.batch(batch_size=40) as batch:
            for row in rows:
                own = {"row_id": row["id"], "text": row["text"], "doc_id": row["group"]}
                name = str(uuid.uuid5(uuid.NAMESPACE_URL, row["id"]))
                batch.add_data_object(own, "Idx", name, vector=row["vector"])
    assert client.schema.get("Idx")["class"] == "Idx"
    read, after = {}, None
    while True:
        page = client.data_object.get(class_name="Idx", limit=PAGE, after=after, with_vector=True)["objects"]
        if not page:
            break
        read |= {each["properties"]["row_id"]: each["vector"] for each in page}
        after = page[-1]["id"]
    found = []
    for query in QUERIES:
        asked = client.query.get("Idx", ["row_id"]).with_near_vector({"vector": query}).with_limit(TOP)
        answer = asked.with_additional("id").do()
        found.append([hit["row_id"] for hit in answer["data"]["Get"]["Idx"]])
    return read, found


def pinecone(place, rows, write):
    from pinecone import Pinecone

    index = Pinecone(api_key="none").index(host=f"http://{place}")
    if write:
        vectors = [
            {"id": r["id"], "values": r["vector"], "metadata": {"text": r["text"], "doc_id": r["group"]}} for r in rows
        ]
        for start in range(0, len(vectors), 40):
            index.upsert(vectors=vectors[start : start + 40], namespace="ns")
    assert index.describe_index_stats().total_vector_count == len(rows)
    read, token = {}, None
    while True:
        page = index.list_paginated(namespace="ns", limit=PAGE, pagination_token=token)
        names = [each.id for each in page.vectors]
        fetched = index.fetch(ids=names, namespace="ns").vectors
        read |= {name: list(fetched[name].values) for name in names}
        token = page.pagination.next if page.pagination else None
        if not token:
            break
    found = [[match.id for match in index.query(vector=query, top_k=TOP, namespace="ns").matches] for query in QUERIES]
    return read, found


if __name__ == "__main__":
    KIND, PLACE, WRITE = sys.argv[1:]
    TOLD = json.load(sys.stdin)
    QUERIES = TOLD["queries"]
    READ, FOUND = globals()[KIND](PLACE, TOLD["rows"], WRITE == "yes")
    print(json.dumps({"rows": READ, "found": FOUND}))
