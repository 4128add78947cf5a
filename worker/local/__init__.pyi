from .align import align_file as align_file
from .language_model import build_language_model as build_language_model
from .report import render_results as render_results
from .transcribe import transcribe_files as transcribe_files, transcribe_with as transcribe_with
