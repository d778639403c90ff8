"""A fake of gradio's own module: it hands out an address without a relay, or refuses as gradio does without one."""

import os


def setup_tunnel(local_host, local_port, share_token, share_server_address, share_server_tls_certificate):
    if os.environ.get("FAKE_GRADIO_DOWN"):
        raise RuntimeError("Could not get share link from Gradio API Server.")
    print(f"fake gradio shares {local_host}:{local_port}")
    return "https://0123456789abcdef.gradio.live"
