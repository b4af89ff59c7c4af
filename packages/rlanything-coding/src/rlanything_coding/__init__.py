"""The coding domain: programs that the policy writes, tests that the judge writes."""
