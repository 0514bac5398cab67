"""Ids of imported crontabs: everybody sees them, and a command may hold secrets."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.importers.crontab.names import UNNAMED, name_of

WITH_SECRETS = {
    "curl -fsS https://example.com/ping/6f1b2c3d-hunter1": "curl",
    "PGPASSWORD=hunter1 pg_dump -h db prod": "pg_dump",
    "mysqldump -u root --password=hunter1 prod": "mysqldump",
    "mysql -phunter1 prod": "mysql",
    "curl -u admin:hunter1 https://example.com/cron": "curl",
    "wget 'https://example.com/cron.php?key=hunter1'": "wget",
    "redis-cli -a hunter1 BGSAVE": "redis-cli",
    "echo hunter1 | docker login --password-stdin": "echo",
    "RESTIC_PASSWORD='a; hunter1' restic backup /srv": "restic",
    "export PASSWORD='a; hunter1'; backup": "backup",
    "env PASSWORD=hunter1 backup": "env",
    "bash -c '/usr/bin/report --password=hunter1'": "bash",
    "cat <<< hunter1 > /srv/secret": "cat",
    "<<< hunter1 cat": "cat",
    "PASSWORD=$(cat /run/hunter1) report": "report",
    "PASSWORD=`echo hunter1` report": "report",
    "PASSWORD=$(cat /run/key)hunter1 report": "report",
    'PASSWORD="$(f "a hunter1")" report': "report",
    "PASSWORD=$((hunter1 + 1)) report": "report",
    "KEYS[0]=hunter1 report": "report",
    "KEYS=(hunter1 b) report": "report",
    "KEYS=(')' hunter1); report": "report",
    "A=1 KEYS=(hunter1 b) report": "report",
    "export KEYS=(hunter1 b); report": "report",
    "cd ';' hunter1; report": "report",
    "PASSWORD='hunter1 report": UNNAMED,
    "PASSWORD=1 # hunter1": UNNAMED,
}
WITHOUT = {
    "cd /srv/app && ./bin/report --keep 90": "report",
    "/usr/bin/php /var/www/artisan schedule:run >> /dev/null 2>&1": "php-artisan",
    "test -x /usr/sbin/anacron || ( cd / && run-parts --report /etc/cron.daily )": "run-parts-cron-daily",
    "sudo -u www /srv/report.sh --all": "sudo-report-sh",
    '"$HOME"/bin/report': "report",
    "A=1": UNNAMED,
    "report 'without end": "report",
    "é": UNNAMED,
}


@pytest.mark.parametrize(("command", "name"), [*WITH_SECRETS.items(), *WITHOUT.items()])
def test_a_command_is_named_after_its_program(command: str, name: str) -> None:
    """And after the file that this one runs, where it runs any."""
    assert name_of(command) == name


@given(st.text(max_size=200))
def test_every_name_fits_an_id(command: str) -> None:
    """Whatever the command is made of."""
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,40}", name_of(command))


@given(
    st.sampled_from(["backup {}", "backup --token {} prod", "A={} backup", "cd {} && backup", "sh -c 'backup {}'"]),
    st.text(alphabet="ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:@?=&;|<>()$. ", min_size=8, max_size=30),
)
def test_no_argument_is_in_a_name(command: str, secret: str) -> None:
    """As it stands there in quotes."""
    quoted = f"'{secret}'" if "'" not in command else secret
    assert name_of(command.format(quoted)) in {"backup", "sh"}
