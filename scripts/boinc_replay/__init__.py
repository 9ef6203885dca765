"""Captured requests of stock BOINC clients, replayed whole and damaged."""
