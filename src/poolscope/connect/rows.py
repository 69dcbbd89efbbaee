"""What the room of connections brings to the tables of the core, as data: stores, causes, commands, services."""

_RUNTIME, _SEAL = "poolscope.connect.commands.runtime", "poolscope.connect.commands.seal"
_MIGRATE, _MODALITIES = "poolscope.connect.commands.migrate", "poolscope.connect.commands.modalities"

# `starts`: an address of such a store begins with one of these.
CONNECTORS = (
    {
        "name": "qdrant",
        "words": "qdrant(s)://host:port/collection or qdrant:folder/collection",
        "starts": ("qdrant://", "qdrants://", "qdrant:"),
        "open": "poolscope.connect.qdrant:open_qdrant",
        "write": "poolscope.connect.qdrant:write_qdrant",
        "extra": "qdrant",
    },
    {
        "name": "chroma",
        "words": "chroma:folder/collection or chroma(s)://host:port/collection",
        "starts": ("chroma://", "chromas://", "chroma:"),
        "open": "poolscope.connect.chroma:open_chroma",
        "write": "poolscope.connect.chroma:write_chroma",
        "extra": "chroma",
    },
    {
        "name": "pgvector",
        "words": "postgresql://user@host/base?table=NAME",
        "starts": ("postgresql://", "postgres://"),
        "open": "poolscope.connect.postgres:open_postgres",
        "write": "poolscope.connect.postgres:write_postgres",
        "extra": "pgvector",
    },
    {
        "name": "sqlite-vec",
        "words": "sqlite-vec:file.db/table",
        "starts": ("sqlite-vec:",),
        "open": "poolscope.connect.sqlite_vec:open_sqlite_vec",
        "write": "poolscope.connect.sqlite_vec:write_sqlite_vec",
        "extra": "sqlite-vec",
    },
    {
        "name": "duckdb",
        "words": "duckdb:file.duckdb/table",
        "starts": ("duckdb:",),
        "open": "poolscope.connect.duckdb:open_duckdb",
        "write": "poolscope.connect.duckdb:write_duckdb",
        "extra": "duckdb",
    },
    {
        "name": "elastic",
        "words": "elastic(s)://host:9200/index or opensearch(s)://host:9200/index",
        "starts": ("elastic://", "elastics://", "opensearch://", "opensearchs://"),
        "open": "poolscope.connect.elastic:open_elastic",
        "write": "poolscope.connect.elastic:write_elastic",
        "extra": None,
    },
    {
        "name": "milvus",
        "words": "milvus:folder.db/collection or milvus(s)://host:19530/collection",
        "starts": ("milvus://", "milvuss://", "milvus:"),
        "open": "poolscope.connect.milvus:open_milvus",
        "write": "poolscope.connect.milvus:write_milvus",
        "extra": "milvus",
    },
    {
        "name": "redis",
        "words": "redis(s)://host:6379/NAME, an index or a prefix of hashes",
        "starts": ("redis://", "rediss://"),
        "open": "poolscope.connect.redis:open_redis",
        "write": "poolscope.connect.redis:write_redis",
        "extra": "redis",
    },
    {
        "name": "weaviate",
        "words": "weaviate(s)://host:8080/Collection",
        "starts": ("weaviate://", "weaviates://"),
        "open": "poolscope.connect.weaviate:open_weaviate",
        "write": "poolscope.connect.weaviate:write_weaviate",
        "extra": None,
    },
    {
        "name": "pinecone",
        "words": "pinecone://index-host/namespace",
        "starts": ("pinecone://",),
        "open": "poolscope.connect.pinecone:open_pinecone",
        "write": "poolscope.connect.pinecone:write_pinecone",
        "extra": None,
    },
)
CAUSES = ("poolscope.connect.runtimes.in_audit:SERVER",)
# Name, module, one line, panel of the help; behind it the group, where the command belongs to one.
COMMANDS = (
    ("runtime", _RUNTIME, "Does a server give the vectors of a model? If not, what does it do?", "Start here"),
    ("seal", _SEAL, "A small file by which an index or a server is recognised.", "Watch"),
    ("check", _SEAL, "Is a server or an index still what was sealed?", "Watch"),
    ("migrate", _MIGRATE, "Two stores or servers before a switch: what changes?", "Watch"),
    ("mcp", "poolscope.connect.mcp", "Tools for assistants: audit, explain a miss, cost, check.", "More"),
    ("modalities", _MODALITIES, "Texts beside images in one model: their gap, and SOCM across it.", "More", "lab"),
    ("mteb", "poolscope.connect.mteb_run", "Scores of models on MTEB(eng, v2), task by task.", "More", "lab"),
)
REHEARSALS = (("patches", "poolscope.connect.patches:rehearse_patches"),)
SERVICES = (
    ("engine", "poolscope.connect.engines.base:make_engine"),
    ("encoding on an engine", "poolscope.connect.engines.work:encode_with"),
    ("metric on an engine", "poolscope.connect.engines.work:measure_with"),
    ("worst pairs on an engine", "poolscope.connect.engines.work:worst_with"),
    ("texts on an engine", "poolscope.connect.engines.work:over_texts"),
    ("source of vectors", "poolscope.connect.servers.endpoint:as_vector_source"),
    ("images and sound", "poolscope.connect.patches:open_patches"),
    ("answer of a language model", "poolscope.connect.servers.chat:answer"),
)
