from .batches import (
    BatchDetail as BatchDetail,
    BatchOut as BatchOut,
    BatchRequest as BatchRequest,
    BatchResult as BatchResult,
    BatchRetried as BatchRetried,
)
from .clips import ClipFormat as ClipFormat
from .clips import ClipOut as ClipOut
from .clips import ClipWords as ClipWords
from .closures import ClosureOut as ClosureOut
from .closures import OpeningOut as OpeningOut
from .closures import PrivateOut as PrivateOut
from .common import (
    ListOf as ListOf,
    Page as Page,
)
from .costs import (
    BudgetOut as BudgetOut,
    CostReportOut as CostReportOut,
    CostRowOut as CostRowOut,
    GroupBy as GroupBy,
)
from .edits import (
    EditOut as EditOut,
    SpreadDone as SpreadDone,
    SpreadOut as SpreadOut,
    SpreadPlace as SpreadPlace,
)
from .events import (
    BatchEvent as BatchEvent,
    BatchProgress as BatchProgress,
    JobEvent as JobEvent,
    JobProgress as JobProgress,
)
from .fleet import (
    DefaultModel as DefaultModel,
    ModelDetail as ModelDetail,
    ModelList as ModelList,
    ModelOut as ModelOut,
    Overview as Overview,
    ProblemOut as ProblemOut,
    Readiness as Readiness,
    WorkerOut as WorkerOut,
)
from .glossaries import (
    GlossaryDetail as GlossaryDetail,
    GlossaryOut as GlossaryOut,
    LanguageModelOut as LanguageModelOut,
    SuggestionOut as SuggestionOut,
)
from .jobs import (
    AudioLink as AudioLink,
    HeardSpeakerOut as HeardSpeakerOut,
    HeldOut as HeldOut,
    JobDeletion as JobDeletion,
    JobDetail as JobDetail,
    JobOut as JobOut,
    StretchOut as StretchOut,
    JobRequest as JobRequest,
    PhrasesOut as PhrasesOut,
    VoiceOut as VoiceOut,
)
from .outputs import (
    Access as Access,
    ConnectionOut as ConnectionOut,
    ExportOut as ExportOut,
)
from .review import (
    ReviewPassageOut as ReviewPassageOut,
    ReviewRecordingOut as ReviewRecordingOut,
    SampleOut as SampleOut,
    SizeOut as SizeOut,
)
from .search import FoundOut as FoundOut
from .search import HitOut as HitOut
from .sources import (
    ItemState as ItemState,
    SourceItemOut as SourceItemOut,
    SourceRequest as SourceRequest,
    WatchedSourceOut as WatchedSourceOut,
)
from .uploads import (
    PartOut as PartOut,
    PartPage as PartPage,
    UploadOut as UploadOut,
)
from .versions import (
    BatchDiff as BatchDiff,
    DiffOut as DiffOut,
    VersionList as VersionList,
)
from .webhooks import (
    DeliveryOut as DeliveryOut,
    DeliveryState as DeliveryState,
    WebhookOut as WebhookOut,
    WebhookSecret as WebhookSecret,
)
