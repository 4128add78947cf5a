from .rules import Grace as Grace, RULES as RULES, measure_lost_time as measure_lost_time
from .runner import AuditReport as AuditReport, PAGE as PAGE, audit as audit
