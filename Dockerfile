# One image for web processes and workers; compose.yaml says who is what.
FROM python:3.12-slim
RUN useradd --create-home --home-dir /srv/pilothouse pilothouse
WORKDIR /srv/pilothouse
COPY requirements-scale.lock ./
RUN pip install --no-cache-dir --require-hashes -r requirements-scale.lock
COPY --chown=pilothouse . .
RUN mkdir -p var && chown pilothouse var
USER pilothouse
ENV PYTHONUNBUFFERED=1
EXPOSE 8000
CMD ["python", "-m", "config.serve"]
