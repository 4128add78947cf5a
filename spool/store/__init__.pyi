from .api_keys import (
    any_key as any_key,
    create_key as create_key,
    find_key as find_key,
    list_keys as list_keys,
    note_use as note_use,
    revoke_key as revoke_key,
)
from .archive.connections import (
    create_connection as create_connection,
    get_connection as get_connection,
    reencrypt_connections as reencrypt_connections,
    remove_connection as remove_connection,
    take_link as take_link,
)
from .archive.exports import exports_of as exports_of
from .archive.glossaries import add_version as add_version
from .archive.language_models import (
    FOLDER as FOLDER,
    key_of as key_of,
    list_language_models as list_language_models,
)
from .archive.sources import (
    SourceChange as SourceChange,
    change_source as change_source,
    create_source as create_source,
    get_source as get_source,
    list_items as list_items,
    mark_places as mark_places,
    take_turn as take_turn,
)
from .archive.typescripts import typescript_of as typescript_of
from .archive.uploads import create_upload as create_upload
from .archive.versions import (
    last_done_versions as last_done_versions,
    rerun_job as rerun_job,
    versions_of as versions_of,
)
from .audit import worker_sums as worker_sums
from .batch_progress import batch_counts as batch_counts, read_batch_progress as read_batch_progress
from .batches import (
    add_jobs as add_jobs,
    batch_jobs as batch_jobs,
    close_batch as close_batch,
    create_batch as create_batch,
    get_batch as get_batch,
)
from .chunks import (
    drop_stale as drop_stale,
    load_chunks as load_chunks,
    save_chunk as save_chunk,
    save_chunks as save_chunks,
)
from .database import (
    Database as Database,
    IDLE_IN_TRANSACTION_S as IDLE_IN_TRANSACTION_S,
    driver_url as driver_url,
)
from .deletions import (
    OVERDUE_SECONDS as OVERDUE_SECONDS,
    deletions_of as deletions_of,
    find_expired_jobs as find_expired_jobs,
    mark_deleted as mark_deleted,
)
from .event_log import (
    batch_is_open as batch_is_open,
    place_events as place_events,
    read_events as read_events,
)
from .jobs import (
    JobFilter as JobFilter,
    NewJob as NewJob,
    cancel_job as cancel_job,
    create_job as create_job,
    get_job as get_job,
    hashes_of_source as hashes_of_source,
    job_counts as job_counts,
    keep_phrases as keep_phrases,
    keep_source_hashes as keep_source_hashes,
    list_jobs as list_jobs,
    phrases_of as phrases_of,
    retry_job as retry_job,
    retry_job_once as retry_job_once,
)
from .ledger.charges import (
    Charge as Charge,
    job_cost as job_cost,
    measure_throughputs as measure_throughputs,
    sum_wasted_ns as sum_wasted_ns,
    write_charge as write_charge,
)
from .ledger.reports import cost_report as cost_report
from .live import close_log as close_log, get_parts as get_parts, open_part as open_part
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
from .queue.locks import SWEEP_LOCK as SWEEP_LOCK, try_lock as try_lock, unlock as unlock
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
    unsent as unsent,
)
from .queue.quotas import find_holds as find_holds, refresh_use as refresh_use
from .queue.scheduler import (
    AGED_EACH as AGED_EACH,
    ClaimRequest as ClaimRequest,
    LOOK_AHEAD as LOOK_AHEAD,
    NeedsAlone as NeedsAlone,
    SHORT_BYTES as SHORT_BYTES,
    claim_alone as claim_alone,
    claim_next as claim_next,
    count_runnable as count_runnable,
    goes_before as goes_before,
)
from .passes import load_passes as load_passes
from .sql import now_utc as now_utc, seconds_from_now as seconds_from_now, today_utc as today_utc
from .system import default_model as default_model, set_default_model as set_default_model
from .transcripts.edits import NewEdit as NewEdit, add_edit as add_edit, edits_of as edits_of
from .transcripts.reuse import find_by_content as find_by_content
from .transcripts.search import (
    Hit as Hit,
    TranscriptSearch as TranscriptSearch,
    search_transcripts as search_transcripts,
)
from .transcripts.speakers import diarize_job as diarize_job, name_speakers as name_speakers
from .transcripts.spellings import find_spellings as find_spellings
from .transcripts.voices import list_voices as list_voices, matches as matches, write_prints as write_prints
from .workers import (
    WorkerInfo as WorkerInfo,
    WorkerState as WorkerState,
    heartbeat as heartbeat,
    list_workers as list_workers,
    register_worker as register_worker,
    stop_worker as stop_worker,
)
