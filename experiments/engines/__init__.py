"""Other inference engines that decode the same weights: one adapter each."""
