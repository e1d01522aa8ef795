"""The user for whom a keyring may be opened."""

from __future__ import annotations

from dataclasses import dataclass, field

from encrypted_records.model.api_token import ApiToken
from encrypted_records.model.device_secret import DeviceSecret
from encrypted_records.model.service_key import ServiceKey


@dataclass(frozen=True, slots=True)
class Holder:
    """Somebody who may use the keyring of ``user``.

    Of requests, ``proxy.admission`` makes it and nobody else; of accepted work,
    :meth:`of_accepted_work`.

    Attributes:
        auth: an Authorization value of the user's; it must not print.
        device: the id of the enrolled device that sent the request; None where it has none.
        newcomer: a device that is not enrolled: a keyring that is made for this request takes it
            in. It never opens a keyring that is there already.
        address: where the request came from; empty for what was accepted earlier.
        token: the API token that the request came with. One that only reads has no keyring made,
            and each reaches the jobs and uploads alone that it began.
        service: the service whose string the request came with, which is its keyring.
        accepted: whether this is work that was accepted earlier, such as a job. It may seal and
            send under a keyring that somebody has unlocked, and reads nothing out.
    """

    user: bytes
    auth: str = field(repr=False)
    device: str | None = None
    newcomer: DeviceSecret | None = None
    address: str = ""
    accepted: bool = False
    token: ApiToken | None = None
    service: ServiceKey | None = None

    @property
    def began(self) -> bytes | None:
        """The digest of the request's API token, kept with the jobs and uploads that it begins;
        None where it came with none.
        """
        return None if self.token is None else self.token.digest

    def owns(self, user: bytes, began: bytes | None) -> bool:
        """Whether a job or upload of that user, which was begun with that, is for this request."""
        return user == self.user and (self.token is None or self.token.digest == began)

    @property
    def may_be_limited(self) -> bool:
        """Whether the API may show less to this request than to its user: to an API token, or a job
        that one began, which are limited to some datasets."""
        return self.token is not None or self.accepted

    @classmethod
    def of_accepted_work(cls, user: bytes, auth: str = "") -> Holder:
        """For what the proxy has accepted earlier: a job, or an upload that is handed over to
        one."""
        return cls(user, auth, accepted=True)
