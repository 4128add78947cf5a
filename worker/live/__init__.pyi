from .endpoint import EndpointRules as EndpointRules, Reason as Reason
from .events import End as End, Event as Event, Final as Final, Mark as Mark, Partial as Partial
from .feed import LiveAnswer as LiveAnswer, LiveFeed as LiveFeed
from .group import LiveGroup as LiveGroup
from .session import LiveOptions as LiveOptions, LiveSession as LiveSession
from .voice import Voice as Voice
