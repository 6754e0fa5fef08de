"""Experts: different ways of answering the same question, and what they share."""
