from .entries import (
    Catalogue as Catalogue,
    Entry as Entry,
    load_catalogue as load_catalogue,
    read_catalogue as read_catalogue,
)
from .packages import hash_of as hash_of
from .records import Installed as Installed, Progress as Progress, Verification as Verification
from .store import (
    ModelStore as ModelStore,
    diarization_places as diarization_places,
    fetch_model as fetch_model,
    hold_model as hold_model,
    installed_path as installed_path,
    loadable_models as loadable_models,
    open_store as open_store,
)
