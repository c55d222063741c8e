"""How does a page ask after this deployment? `{% load deployment %}{% deployment_health as health %}`."""

from django import template

from project import health

register = template.Library()


@register.simple_tag
def deployment_health() -> health.Health:
    return health.look()
