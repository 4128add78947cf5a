from .address_policy import (
    AddressRules as AddressRules,
    HostRefused as HostRefused,
    HostUnknown as HostUnknown,
    is_public as is_public,
    may_be_private as may_be_private,
    normal_host as normal_host,
)
from .pinned_http import PinnedTransport as PinnedTransport
