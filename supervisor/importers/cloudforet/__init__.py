"""Conversion of Cloudforet configurations."""
