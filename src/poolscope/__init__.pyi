# The public names and where they live, once: type checkers read this file, and `__init__.py` reads it too.
from poolscope.auditing.compare import compare as compare
from poolscope.auditing.result import Audit as Audit
from poolscope.auditing.run import audit as audit
from poolscope.chunks import chunk_texts as chunk_texts
from poolscope.clouds import CloudBuilder as CloudBuilder
from poolscope.clouds import CloudWriter as CloudWriter
from poolscope.clouds import TokenClouds as TokenClouds
from poolscope.clouds.vectors import read_vectors as read_vectors
from poolscope.encoders import as_encoder as as_encoder
from poolscope.encoders import encode as encode
from poolscope.errors import PoolscopeError as PoolscopeError
from poolscope.evaluation import evaluate as evaluate
from poolscope.metrics.hubs import hubs as hubs
from poolscope.metrics.layers.measure import layers as layers
from poolscope.metrics.layers.result import LayersResult as LayersResult
from poolscope.metrics.length.profile import length_profile as length_profile
from poolscope.metrics.length.report import length_report as length_report
from poolscope.metrics.socm.measure import socm as socm
from poolscope.metrics.socm.result import SocmResult as SocmResult
from poolscope.metrics.socm.score import SocmFormula as SocmFormula
from poolscope.metrics.socm.score import SocmPair as SocmPair
from poolscope.metrics.socm.score import socm_pair as socm_pair
from poolscope.metrics.socm.worst import worst_pairs as worst_pairs
from poolscope.metrics.tokens.measure import token_statistics as token_statistics
from poolscope.metrics.tokens.result import TokenStatistics as TokenStatistics
from poolscope.numbers.bures import bures_wasserstein as bures_wasserstein
from poolscope.numbers.intervals import Interval as Interval
from poolscope.numbers.pooling import pool as pool
from poolscope.repairs.repair_file import Repair as Repair
from poolscope.repairs.temperature.bake import bake as bake
from poolscope.repairs.temperature.tempscale import tempscale as tempscale
from poolscope.repairs.tune import tune as tune
from poolscope.research.correlate import CorrelationStudy as CorrelationStudy
from poolscope.research.correlate import correlate as correlate
from poolscope.research.interventions import intervene as intervene
from poolscope.research.transport import transport as transport
from poolscope.stores.store import open_clouds as open_clouds
from poolscope.texts import read_pairs as read_pairs
from poolscope.texts import read_texts as read_texts

__version__: str
__all__: list[str]
