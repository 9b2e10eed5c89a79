"""What libraries print is hidden in a block, and only there."""

from transformers.utils import logging

from student.models.library_output import hide_library_output


def test_transformers_is_as_talkative_afterwards_as_before() -> None:
    before = logging.get_verbosity()
    logging.set_verbosity_info()
    try:
        with hide_library_output():
            assert logging.get_verbosity() == logging.ERROR
        assert logging.get_verbosity() == logging.INFO
    finally:
        logging.set_verbosity(before)
