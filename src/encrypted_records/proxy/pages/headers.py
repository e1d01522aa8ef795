"""Headers of every page: it is not kept, loads nothing from elsewhere, and may use no device."""

from __future__ import annotations

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
        " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    # The address of a signed link is secret. "no-referrer" would turn forms' Origin into null.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": ", ".join(
        f"{power}=()"
        for power in (
            *("accelerometer", "autoplay", "camera", "display-capture", "encrypted-media"),
            *("fullscreen", "geolocation", "gyroscope", "hid", "idle-detection", "magnetometer"),
            *("microphone", "midi", "payment", "publickey-credentials-get", "screen-wake-lock"),
            *("serial", "usb", "xr-spatial-tracking"),
        )
    ),
}
