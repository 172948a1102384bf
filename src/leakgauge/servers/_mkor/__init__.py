"""The parts of the MKOR server: what the network is, which channels and units it uses, and how they are read."""
