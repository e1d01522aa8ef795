"""The user for whom a keyring may be opened."""

from __future__ import annotations

from dataclasses import dataclass, field

from encrypted_records.model.credentials import BearerToken, DeviceSecret, ServiceKey


@dataclass(frozen=True, slots=True)
class Holder:
    """A caller who may use the keyring of ``user``.

    ``proxy.admission`` makes it for requests, and ``proxy.api.devices`` for the first keyring of a
    user who creates a device; :meth:`of_accepted_work` makes it for accepted work.

    Attributes:
        auth: the value of an Authorization header of the user; it must not be printed.
        device: the id of the registered device that sent the request; None if there is none.
        newcomer: an unregistered device: it is registered if a keyring is made for this request. It
            never opens an existing keyring.
        address: the network address of the sender; empty for accepted work.
        token: the API token that the request came with. No keyring is made for a read-only token,
            and a token has access only to jobs and uploads that it began.
        service: the service whose secret key, which is its keyring, the request has.
        accepted: whether this is work that was accepted earlier, such as a job. It may encrypt and
            send under an unlocked keyring, and returns no data.
    """

    user: bytes
    auth: str = field(repr=False)
    device: str | None = None
    newcomer: DeviceSecret | None = None
    address: str = ""
    accepted: bool = False
    token: BearerToken | None = None
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
