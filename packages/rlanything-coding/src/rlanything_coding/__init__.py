"""The coding domain: the policy writes programs, and the judge writes their tests."""
