from .rules import Grace as Grace, RULES as RULES
from .runner import AuditReport as AuditReport, PAGE as PAGE, audit as audit
