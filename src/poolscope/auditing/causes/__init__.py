"""The causes of misses, one file each, in the order in which they are shown."""

from poolscope.auditing.cause import register_cause
from poolscope.auditing.causes.averaging import AVERAGING
from poolscope.auditing.causes.boilerplate import BOILERPLATE
from poolscope.auditing.causes.direction import SHARED_DIRECTION
from poolscope.auditing.causes.duplicates import DUPLICATES
from poolscope.auditing.causes.hubs import HUBS
from poolscope.auditing.causes.index import INDEX
from poolscope.auditing.causes.language import LANGUAGE
from poolscope.auditing.causes.long_texts import LONG_TEXTS
from poolscope.auditing.causes.one_space import ONE_SPACE
from poolscope.auditing.causes.position import POSITION
from poolscope.auditing.causes.prompt import PROMPT
from poolscope.auditing.causes.recall import RECALL
from poolscope.auditing.causes.short_texts import SHORT_TEXTS
from poolscope.auditing.causes.truncation import TRUNCATION
from poolscope.extensions import resolve, rows_of

# From the index over the texts to the model; a cause that a room brings is one of the index.
_OF_THE_INDEX = (*map(resolve, rows_of("CAUSES")), INDEX, ONE_SPACE, RECALL)
_OF_THE_TEXTS = (DUPLICATES, BOILERPLATE, TRUNCATION, PROMPT, LANGUAGE)
_OF_THE_MODEL = (POSITION, LONG_TEXTS, SHORT_TEXTS, AVERAGING, SHARED_DIRECTION, HUBS)
for _cause in (*_OF_THE_INDEX, *_OF_THE_TEXTS, *_OF_THE_MODEL):
    register_cause(_cause)
