"""Makes an API token for a user and prints it once."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import CommandError
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime

from tasks import access
from tasks.errors import Invalid
from tasks.management.people import in_words
from tasks.management.unchecked import UncheckedCommand


class Command(UncheckedCommand):
    help = "Make an API token for USER. It is printed once, alone on the last line."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("user", help="whose token it is (user name)")
        parser.add_argument("--name", default="", help="what it is for")
        parser.add_argument(
            "--expires", metavar="WHEN", help="in so many days, or at a date (2030-12-31)"
        )
        parser.add_argument(
            "--scopes",
            default=",".join(access.SCOPES),
            help="some of read,write,approve (default: all)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        with in_words():
            self._make(options)

    def _make(self, options: dict[str, Any]) -> None:
        users = get_user_model()
        try:
            user = users._default_manager.get_by_natural_key(options["user"])
        except users.DoesNotExist:
            raise CommandError(f"There is no user called {options['user']}.") from None
        expires = _when(options["expires"]) if options["expires"] else None
        scopes = [scope.strip() for scope in options["scopes"].split(",")]
        try:
            token = access.issue_token(user, options["name"], expires, scopes)
        except Invalid as refused:
            raise CommandError(refused.message) from None
        until = f"until {expires:%Y-%m-%d %H:%M %Z}" if expires else "until it is revoked"
        self.stdout.write(
            f"Token of {user} for {', '.join(scopes)}, {until}. Keep it: this is the only time it is shown."
        )
        self.stdout.write(token)


def _when(text: str) -> datetime:
    try:
        if text.isdecimal():
            return timezone.now() + timedelta(days=int(text))
        moment = parse_datetime(text) or _midnight(text)
    except (ValueError, OverflowError):  # digits that are no date, or a date past all calendars
        moment = None
    if moment is None:
        raise CommandError(f"--expires {text}: write a number of days or a date like 2030-12-31.")
    return moment if timezone.is_aware(moment) else timezone.make_aware(moment)


def _midnight(text: str) -> datetime | None:
    day = parse_date(text)
    return datetime(day.year, day.month, day.day) if day else None  # noqa: DTZ001 - made aware by the caller
