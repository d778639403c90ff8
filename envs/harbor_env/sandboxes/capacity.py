"""Tells a backend that has no room just now from one that cannot make a sandbox. Pure.

The words are those of the backends' own clients: e2b's RateLimitException, Daytona's "Total disk limit exceeded",
gRPC's RESOURCE_EXHAUSTED, Kubernetes' "exceeded quota", EC2's InsufficientInstanceCapacity, HTTP's 429.
"""

from __future__ import annotations

import re

_TYPES = re.compile(
    r"RateLimit|TooManyRequests|Quota|Throttl|ResourceExhausted|Capacity(?!Mismatch)|LimitExceeded|LimitReached"
)
_WORDS = re.compile(
    r"\b429\b|too ?many ?(requests|sandboxes|concurrent)|rate.?limit|quota|resource.?exhausted|throttl"
    r"|limit (has been |was )?(exceeded|reached)|(exceed(s|ed)?|reached) (the |your )?[\w ]{0,40}(limit|quota|maximum)"
    r"|(insufficient|out of|no|not enough) [\w ]{0,30}(capacity|resources|nodes|workers)|at capacity"
    r"|InsufficientInstanceCapacity|RequestLimitExceeded|VcpuLimitExceeded|Insufficient (cpu|memory)",
    re.IGNORECASE,
)


def lacks_capacity(error_type: str, error: str = "") -> bool:
    """Whether a sandbox was refused for want of room, rate or quota, so that waiting may mend it."""
    return bool(_TYPES.search(error_type) or _WORDS.search(error) or _TYPES.search(error))
