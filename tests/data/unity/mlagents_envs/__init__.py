"""A stand-in of Unity's mlagents_envs, for a Python without it: scripted scenes, no Unity.

A "build" is a JSON file that says what happens in it (`environment.UnityEnvironment`).
"""
