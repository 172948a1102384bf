"""Objectives, priors, initialisations and label rules that several attacks share."""
