"""In scale-out, the queue: which worker got which task, to look at and not to touch."""

from __future__ import annotations

from django.contrib import admin

from tasks.conf import conf

if conf().scale_out:
    from procrastinate.contrib.django.admin import ProcrastinateJobAdmin
    from procrastinate.contrib.django.models import ProcrastinateJob

    class JobAdmin(ProcrastinateJobAdmin):
        """Procrastinate's own page without its actions: a task is cancelled, not its job."""

        actions = []
        list_filter = ["status", "queue_name", "task_name"]
        search_fields = ["=queueing_lock"]
        show_full_result_count = False

    admin.site.unregister(ProcrastinateJob)
    admin.site.register(ProcrastinateJob, JobAdmin)
