"""The endpoints of sealed records: frames in, frames out.

May import: all other folders of the server. Only ``server.urls`` and the settings refer to this
package.
"""
