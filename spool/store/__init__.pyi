from .api_keys import (
    any_key as any_key,
    create_key as create_key,
    find_key as find_key,
    list_keys as list_keys,
    note_use as note_use,
    revoke_key as revoke_key,
)
from .archive.versions import (
    last_done_versions as last_done_versions,
    rerun_job as rerun_job,
    versions_of as versions_of,
)
from .batch_progress import batch_counts as batch_counts, read_batch_progress as read_batch_progress
from .batches import add_jobs as add_jobs, create_batch as create_batch, get_batch as get_batch
from .chunks import (
    drop_stale as drop_stale,
    load_chunks as load_chunks,
    save_chunk as save_chunk,
    save_chunks as save_chunks,
)
from .database import Database as Database
from .deletions import (
    OVERDUE_SECONDS as OVERDUE_SECONDS,
    deletions_of as deletions_of,
    find_expired_jobs as find_expired_jobs,
    mark_deleted as mark_deleted,
)
from .event_log import batch_is_open as batch_is_open, place_events as place_events
from .jobs import (
    JobFilter as JobFilter,
    NewJob as NewJob,
    cancel_job as cancel_job,
    create_job as create_job,
    get_job as get_job,
    job_counts as job_counts,
    keep_phrases as keep_phrases,
    list_jobs as list_jobs,
    phrases_of as phrases_of,
    retry_job as retry_job,
    retry_job_once as retry_job_once,
)
from .ledger.charges import Charge as Charge, job_cost as job_cost, write_charge as write_charge
from .ledger.reports import cost_report as cost_report
from .monitoring import Audited as Audited, keep_audit as keep_audit, read_gauges as read_gauges
from .queue.endings import (
    Ending as Ending,
    Outcome as Outcome,
    cancel_claimed as cancel_claimed,
    fail_job as fail_job,
    finish_job as finish_job,
    finish_jobs as finish_jobs,
    hand_back as hand_back,
)
from .queue.fair_share import UNKNOWN_SECONDS as UNKNOWN_SECONDS
from .queue.leases import (
    Claim as Claim,
    Passed as Passed,
    claim_job as claim_job,
    renew_lease as renew_lease,
    set_progress as set_progress,
)
from .queue.locks import try_lock as try_lock, unlock as unlock
from .queue.outbox import (
    Hint as Hint,
    SweepLimits as SweepLimits,
    SweepReport as SweepReport,
    due_hints as due_hints,
    due_queues as due_queues,
    give_back_hints as give_back_hints,
    hint_used_up as hint_used_up,
    mark_sent as mark_sent,
    sweep as sweep,
)
from .queue.quotas import find_holds as find_holds, refresh_use as refresh_use
from .queue.scheduler import (
    AGED_EACH as AGED_EACH,
    ClaimRequest as ClaimRequest,
    LOOK_AHEAD as LOOK_AHEAD,
    NeedsAlone as NeedsAlone,
    SHORT_BYTES as SHORT_BYTES,
    claim_next as claim_next,
    count_runnable as count_runnable,
    goes_before as goes_before,
)
from .sql import now_utc as now_utc, seconds_from_now as seconds_from_now, today_utc as today_utc
from .transcripts.reuse import find_by_content as find_by_content
from .transcripts.search import (
    Hit as Hit,
    TranscriptSearch as TranscriptSearch,
    search_transcripts as search_transcripts,
)
from .transcripts.spellings import find_spellings as find_spellings
from .workers import heartbeat as heartbeat, list_workers as list_workers, stop_worker as stop_worker
