"""Turns an audit's typed record into a page; computes nothing."""
