"""Servers that tamper with the model against the defenses of this version: a study of our own."""
