"""Errors that a user can mend: each is told in one line, with exit status 2 and no traceback."""


class PipelineError(Exception):
    """A fault in what the program was given, not in the program.

    The message names the file or setting, what was found, what was expected and what to do. It is one line:
    the command line prints it as it stands.
    """


class ConfigError(PipelineError):
    """A setting that is unknown, out of range or contradicts another."""


class LimitError(ConfigError):
    """A limit on memory that is too low for the work."""


class DataError(PipelineError):
    """Images, labels or a data set that cannot be used as asked."""


class ChangedError(DataError):
    """What a run has listed or written itself is not as it was: a file of the images, a chunk, what a file gives.

    It may go on from its last checkpoint: who knows of one tells :meth:`going_on`.

    Attributes
    ----------
    found : what is otherwise, and than what
    again : what to do where there is no checkpoint
    mend : what to do before the run goes on from one, or nothing
    """

    def __init__(self, found: str, again: str = "start the run again", mend: str = "") -> None:
        super().__init__(found, again, mend)  # all of them: a worker sends it home
        self.found, self.again, self.mend = found, again, mend

    def __str__(self) -> str:
        return f"{self.found}; {self.again}"

    def going_on(self, way: str) -> str:
        """Return the message of a run with a checkpoint; `way` is how it goes on."""
        return "; ".join([self.found, f"{self.mend}, then {way}" if self.mend else way])


class ModelError(PipelineError):
    """A model file that cannot be read, or that does not fit the images it is given."""


class BackendError(PipelineError):
    """A backend that this machine cannot run."""


class OutputError(PipelineError):
    """A file or folder that cannot be written."""


class ResumeError(PipelineError):
    """A run that cannot go on: no checkpoint, a damaged one, or one that does not belong to what it is given."""


class ClusterError(PipelineError):
    """A Dask cluster that cannot be reached, has no workers, or was lost."""
