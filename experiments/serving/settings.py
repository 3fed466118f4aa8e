"""Settings of the server: where it listens, who may use it, and its limits."""

import re
from dataclasses import dataclass, fields
from ipaddress import ip_address
from typing import Annotated

from common.config.section import Natural, Range, Section
from common.errors import LabError


@dataclass(frozen=True)
class Settings:
    """See conf/serve.yaml. api_key: None where everybody who can connect may use the server."""

    bind: str
    port: Annotated[int, Range(0, 65535)]
    api_key: str | None
    queue: Natural
    deadline_s: float
    body_kb: int

    @property
    def loopback(self) -> bool:
        """True if only this machine can connect."""
        return is_loopback(self.bind)


SERVER_KEYS = tuple(field.name for field in fields(Settings))


def is_loopback(name: str) -> bool:
    """True if `name` is an address or a name of this machine alone."""
    try:
        return ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return name.lower() == "localhost"


def read_settings(own: Section) -> Settings:
    """The settings, checked. Raises LabError for a bad value, and for a server open to others without a key."""
    if own.values["api_key"] == "":  # a container's variable that is not set
        own.values["api_key"] = None
    settings = own.read(Settings)
    if settings.api_key and not re.fullmatch(r"[!-~]+( +[!-~]+)*", settings.api_key):
        raise LabError("the API key cannot be a header's value", "give ASCII, without a space at its ends")
    if not settings.loopback and not settings.api_key:
        raise LabError(
            f"bind={settings.bind} lets other machines in, and there is no API key",
            "set LAB_API_KEY in the environment, or leave out bind=",
        )
    return settings
