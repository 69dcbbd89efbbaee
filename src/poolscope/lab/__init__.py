"""The room of researchers and model makers: layers, token types, windows, interventions, transport, the papers."""
