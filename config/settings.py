"""Django's settings. What may differ between installations comes from `config.env`."""

from __future__ import annotations

import tomllib

from csp.constants import NONCE, NONE, SELF

from config.env import ROOT, read

_environment = read()

BASE_DIR = ROOT
VERSION: str = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
PILOTHOUSE = _environment.conf
"""Read it through `tasks.conf.conf()`."""

SECRET_KEY = _environment.secret_key
DEBUG = _environment.debug
ALLOWED_HOSTS = _environment.allowed_hosts

INSTALLED_APPS = [
    "config.apps.Daphne",  # first: its runserver is the ASGI one
    "config.apps.Admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "ninja",  # serves the assets of the API's docs page itself
    "tasks",
]

MIDDLEWARE = [
    "config.middleware.forwarded",
    "config.middleware.api_first",  # what follows is for pages alone
    "config.middleware.static_files",
    "django.middleware.security.SecurityMiddleware",
    "config.middleware.ContentPolicy",
    "config.middleware.Sessions",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "config.urls"
ASGI_APPLICATION = "config.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [ROOT / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "builtins": ["tasks.templatetags.pages"],
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]

DATABASES = {"default": _environment.database}
DATA_UPLOAD_MAX_MEMORY_SIZE = 2 * 1024 * 1024  # of every request body but uploaded files
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels.layers.InMemoryChannelLayer",
        "CONFIG": {"capacity": 10_000},  # a full channel raises; messages are only wake-ups
    }
}

if PILOTHOUSE.scale_out:
    INSTALLED_APPS.insert(-1, "procrastinate.contrib.django")
    PROCRASTINATE_AUTODISCOVER_MODULE_NAME = None
    CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
            "CONFIG": {
                "hosts": [
                    {
                        "address": PILOTHOUSE.redis_url,
                        "max_connections": 10_000,  # redis-py's 100 fail a burst of reconnects
                        "socket_connect_timeout": 2,
                        "socket_timeout": 5,
                        "health_check_interval": 10,
                    }
                ]
            },
        }
    }

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
LOGIN_URL = "sign-in-form"
LOGIN_REDIRECT_URL = "/"

SESSION_COOKIE_SECURE = _environment.https
CSRF_COOKIE_SECURE = _environment.https
CSRF_TRUSTED_ORIGINS = [PILOTHOUSE.origin]
SECURE_HSTS_SECONDS = 365 * 24 * 3600 if _environment.https else 0
SECURE_SSL_REDIRECT = _environment.https
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if _environment.https else None
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
SILENCED_SYSTEM_CHECKS = [
    # HSTS for what lies below our host, and preloading, are not ours to promise.
    "security.W005",
    "security.W021",
]
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF, NONCE],
        "style-src": [SELF],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "manifest-src": [SELF],
        "form-action": [SELF],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
    }
}
"""Of pages, the admin and the API's docs; JSON has a stricter one (`config.middleware`)."""

globals().update(_environment.email)  # EMAIL_BACKEND, EMAIL_HOST … as EMAIL_URL says

LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("zh-hans", "简体中文")]
LANGUAGE_COOKIE_SECURE = _environment.https
LANGUAGE_COOKIE_SAMESITE = "Lax"
TIME_ZONE = "UTC"
FORMAT_MODULE_PATH = "config.formats"
USE_I18N = True
USE_TZ = True

STATIC_URL = "/static/"
STATICFILES_DIRS = [folder for folder in (ROOT / "static",) if folder.is_dir()]
WHITENOISE_USE_FINDERS = True  # files are served from where they lie: no collecting step

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {
        "task": {"()": "config.logging.TaskFilter"},
        "brief": {"()": "config.logging.BriefFilter"},
    },
    "formatters": {
        "line": {"format": "{asctime} {levelname} {name}{task} {message}", "style": "{"}
    },
    "handlers": {
        "stderr": {"class": "logging.StreamHandler", "filters": ["task"], "formatter": "line"}
    },
    "root": {"handlers": ["stderr"], "level": "INFO"},
    "loggers": {
        "django": {"handlers": [], "level": "INFO"},
        "django.request": {"level": "ERROR"},  # a client's mistake is the client's to read
        "django.server": {"handlers": [], "level": "INFO", "propagate": True},
        "daphne": {"level": "WARNING"},
        "httpx": {"level": "WARNING"},
        "procrastinate": {"level": "WARNING"},
        "psycopg.pool": {"level": "ERROR"},
        "channels_redis.pubsub": {"filters": ["brief"]},
    },
}
