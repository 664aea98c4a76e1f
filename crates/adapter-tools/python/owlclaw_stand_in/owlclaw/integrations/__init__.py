"""What the stand-in has of OwlClaw's integrations: LangChain. All others need the package."""


def __getattr__(name):
    from .. import missing

    raise AttributeError(missing("owlclaw.integrations.%s" % name))
