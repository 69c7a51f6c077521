"""Search of an exception's frames for a secret, as error trackers see the frames."""

from __future__ import annotations


def frames_with(secret: str, error: BaseException | None) -> list[str]:
    """Return each local variable whose repr has *secret*, in all frames of *error*, its causes and contexts.

    Frames of test files are left out.
    """
    found: list[str] = []
    waiting, seen = [error], set[int]()
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        waiting += [each.__cause__, each.__context__]
        trace = each.__traceback__
        while trace is not None:
            frame = trace.tb_frame
            if "tests" not in frame.f_code.co_filename.split("/"):
                place = f"{frame.f_code.co_qualname} ({type(each).__name__})"
                found += [
                    f"{place}: {name}" for name, value in frame.f_locals.items() if secret in repr(value)
                ]
            trace = trace.tb_next
    return found
