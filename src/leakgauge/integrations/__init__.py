"""Other frameworks: Flower, Lightning, Opacus."""
