"""The token-native gateway: text on the harness side, token ids on the engine side."""
