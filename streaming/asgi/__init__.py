"""The edge between any ASGI server and Django.

One module per shim, each a plain ASGI application around the next, so that the product behaves the
same under Daphne (the default, which has no back-pressure and no lifespan) and under uvicorn:
`lifetime` > `pressure` > `exchanges` > `body` > `lanes` > Django.
"""
