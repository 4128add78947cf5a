from .api_keys import (
    KEY_PATTERN as KEY_PATTERN,
    Scope as Scope,
    digest_key as digest_key,
    is_same_key as is_same_key,
    key_id_of as key_id_of,
    mint_key as mint_key,
)
from .archive.alignment import Align as Align, Typescript as Typescript
from .archive.diarization import Diarization as Diarization
from .archive.edits import (
    Edit as Edit,
    apply_edits as apply_edits,
    check_edit as check_edit,
    find_standing_edits as find_standing_edits,
)
from .archive.passages import Passage as Passage, Spoken as Spoken, passages_of as passages_of
from .archive.query import matches_query as matches_query, parse_query as parse_query
from .archive.readings import (
    AlternativeReading as AlternativeReading,
    MOST_READINGS_OF_PASSAGE as MOST_READINGS_OF_PASSAGE,
    readings_of as readings_of,
)
from .archive.record import Record as Record, WholeRecord as WholeRecord
from .archive.recutting import Cut as Cut, recut_passages as recut_passages
from .archive.review import Doubts as Doubts, review_passages as review_passages
from .archive.sampling import (
    Population as Population,
    estimate as estimate,
    passage_errors as passage_errors,
    sample_size as sample_size,
    t_quantile as t_quantile,
)
from .archive.stretch import Stretch as Stretch
from .archive.tokens import pairs_of as pairs_of
from .archive.typescripts import (
    MAX_TYPESCRIPT_BYTES as MAX_TYPESCRIPT_BYTES,
    SpokenWord as SpokenWord,
    read_typescript as read_typescript,
)
from .archive.verbatim import leave_out as leave_out, mark_disfluencies as mark_disfluencies
from .archive.voices import (
    MOST_VOICE_MATCHES as MOST_VOICE_MATCHES,
    KnownVoice as KnownVoice,
    cosine as cosine,
    matches_of as matches_of,
    mean_print as mean_print,
)
from .columns import (
    BigInt as BigInt,
    Id as Id,
    Length as Length,
    NullIfEmpty as NullIfEmpty,
    SmallInt as SmallInt,
)
from .deadlines import Load as Load, forecast_deadlines as forecast_deadlines
from .events import EVENT_TYPES as EVENT_TYPES, Event as Event
from .fleet.models import (
    AnnouncedModel as AnnouncedModel,
    different_weights as different_weights,
)
from .fleet.quality import Quality as Quality, quality_of as quality_of
from .fleet.routing import (
    Machine as Machine,
    Offer as Offer,
    Requirement as Requirement,
    Route as Route,
    WorkerReport as WorkerReport,
    route_of as route_of,
    why_waiting as why_waiting,
)
from .jobs import (
    Job as Job,
    JobSpeaker as JobSpeaker,
    JobState as JobState,
    MOVES as MOVES,
    Source as Source,
    queue_name as queue_name,
)
from .ledger import CostReport as CostReport, GroupBy as GroupBy, Measured as Measured
from .live.log import (
    LogParts as LogParts,
    LogRecord as LogRecord,
    decode_record as decode_record,
    is_in_part as is_in_part,
    log_prefix as log_prefix,
    part_prefix as part_prefix,
    record_key as record_key,
)
from .live.options import Listening as Listening
from .manifest import (
    BadLine as BadLine,
    ManifestLine as ManifestLine,
    ManifestReport as ManifestReport,
    manifest_lines as manifest_lines,
    number_lines as number_lines,
    read_manifest_line as read_manifest_line,
    rows_of as rows_of,
)
from .options import AskedOptions as AskedOptions, JobOptions as JobOptions
from .pricing import (
    Dated as Dated,
    PurchasedMachine as PurchasedMachine,
    Rate as Rate,
    cost_nanos as cost_nanos,
    money as money,
    price_micros as price_micros,
    price_of as price_of,
    rtfx as rtfx,
)
from .priority import HIGH as HIGH, LOW as LOW, NEVER as NEVER, NORMAL as NORMAL, Rules as Rules
from .quotas import Hold as Hold, Quota as Quota
from .retention import (
    Content as Content,
    Retention as Retention,
    content_of as content_of,
    rule_for as rule_for,
)
from .search.glossary import (
    MOST_GLOSSARY_BYTES as MOST_GLOSSARY_BYTES,
    parse_reference as parse_reference,
    read_glossary_csv as read_glossary_csv,
    read_glossary_text as read_glossary_text,
)
from .search.names import find_names as find_names
from .search.phrases import Boost as Boost, MOST_PHRASES as MOST_PHRASES, phrase_list as phrase_list
from .search.rescoring import Rescoring as Rescoring
from .recognition import (
    ChunkSpan as ChunkSpan,
    DecodedChunk as DecodedChunk,
    Hypothesis as Hypothesis,
    Recognition as Recognition,
)
from .transcript import (
    Alternative as Alternative,
    AudioFacts as AudioFacts,
    ChunkLanguage as ChunkLanguage,
    ChunkNbest as ChunkNbest,
    Coverage as Coverage,
    DiarizationFacts as DiarizationFacts,
    LanguageSpan as LanguageSpan,
    Lattice as Lattice,
    LatticeArc as LatticeArc,
    LatticeEnd as LatticeEnd,
    ModelFacts as ModelFacts,
    NbestText as NbestText,
    Segment as Segment,
    Speaker as Speaker,
    SpeechSpan as SpeechSpan,
    Transcript as Transcript,
    Turn as Turn,
    Word as Word,
    language_of_text as language_of_text,
)
from .webhooks import RETRY_SECONDS as RETRY_SECONDS, new_secret as new_secret, wait_after as wait_after
from .work_hours import WorkHours as WorkHours, format_until as format_until, parse_hours as parse_hours
from .worker_stats import WorkCounts as WorkCounts
