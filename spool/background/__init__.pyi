from .content_deleter import delete_content as delete_content, delete_once as delete_once
from .sweeper import Contact as Contact, update_deadlines as update_deadlines
