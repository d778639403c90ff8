"""HTTP for clients that offer to speak another protocol: they are answered in the one they asked in (RFC 9110, 7.8).

Invariant: a request with an offer reaches the app as it would have without one, body included; only the announcement in
its `connection` header is gone.
"""

from __future__ import annotations

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class NoUpgradeProtocol(HttpToolsProtocol):
    """uvicorn's protocol, whose parser takes everything after the headers of an offer for the other protocol's.

    Such a head is kept from the app, written anew without the announcement, and read by a fresh parser.
    """

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            if self.parser.get_method() == b"CONNECT":  # an upgrade by its nature, and this is no proxy
                self.send_400_response("CONNECT is not served here.")
                return
            head = self._without_announcement()
            self.parser = httptools.HttpRequestParser(self)
            self.data_received(head + data[offer.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

    def on_headers_complete(self) -> None:
        if not self.parser.should_upgrade():
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def _without_announcement(self) -> bytes:
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        for name, value in self.headers:
            if name == b"connection":
                value = b", ".join(w for word in value.split(b",") if (w := word.strip()).lower() != b"upgrade")
            lines.append(b"%b: %b" % (name, value))
        return b"\r\n".join([*lines, b"", b""])
