"""Servers that tamper with the model against the defences of this version: a study of our own."""
